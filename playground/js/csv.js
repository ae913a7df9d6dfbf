// CSV files of a plane: a header with x and y, then a line for each node.
"use strict";

const SEPARATORS = [";", "\t", ","];
const LABELS = ["id", "name"]; // columns that an instance does not need

const firstLine = (text) => text.trimStart().split(/[\r\n]/, 1)[0];
const isCsv = (text) => !firstLine(text).includes(":") && SEPARATORS.some((mark) => firstLine(text).includes(mark));

// Read the text of a CSV file into an instance of the TSP: a demand would need a capacity, which such a file lacks.
function readCsv(text, fileName) {
  const separator = SEPARATORS.find((mark) => firstLine(text).includes(mark)),
    split = (line) => line.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
  const fail = (line, message) => {
    throw new instances.InvalidInput(`line ${line}: ${message}`);
  };
  const [header, ...rows] = text
    .split(/\r\n|\r|\n/)
    .map((row, i) => ({ cells: split(row), line: i + 1, empty: !row.trim() }))
    .filter(({ empty }) => !empty);
  const names = header.cells.map((name) => name.toLowerCase()),
    other = names.find((name) => !["x", "y", ...LABELS].includes(name));
  if (other !== undefined || !names.includes("x") || !names.includes("y"))
    fail(
      header.line,
      `found ${other === undefined ? `the columns ${names.join(", ")}` : `the column ${instances.quote(other)}`}, expected x and y, and at most ${LABELS.join(" and ")}`,
    );
  if (rows.length < 2 || rows.length > instances.MAX_NODES)
    throw new instances.InvalidInput(`the file has ${rows.length} nodes; this page takes 2 to ${instances.MAX_NODES}`);
  const points = rows.map(({ cells, line }) => {
    if (cells.length !== names.length)
      fail(line, `found ${instances.quote(cells.join(separator))}, expected ${names.length} cells`);
    return ["x", "y"].map((name) => {
      const cell = cells[names.indexOf(name)];
      return instances.number(separator === "," ? cell : cell.replace(",", "."), line);
    });
  });
  const ids = points.map((_, i) => i + 1);
  return instances.scaled("TSP", "EXACT_2D", points, fileName, ids);
}
