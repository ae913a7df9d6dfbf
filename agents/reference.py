def reference_cost(problem, instance):
    return None
