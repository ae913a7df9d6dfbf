"""Neural policies."""

import routing_gym  # noqa: F401  # first: the modules of ROUTING_GYM_MODULES may import this package
