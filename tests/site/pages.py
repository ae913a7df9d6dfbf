"""What tests of the playground share: waiting for it, and reading it."""


def settled(page):
    """Wait until the comparison, the last thing that is computed, is there."""
    page.wait_for_function("document.querySelectorAll('#compare tr').length > 1 && !page.compare.worker")
    return page


def text(page, selector):
    return page.locator(selector).inner_text()


def cost(page):
    return float(text(page, "#cost").replace(",", ""))


def until(page, expression):
    page.wait_for_function(expression)


def drop(page, name, content):
    page.evaluate(
        """([name, content]) => { const transfer = new DataTransfer();
        transfer.items.add(new File([content], name));
        const drop = { dataTransfer: transfer, bubbles: true, cancelable: true };
        document.body.dispatchEvent(new DragEvent("drop", drop)); }""",
        [name, content],
    )
