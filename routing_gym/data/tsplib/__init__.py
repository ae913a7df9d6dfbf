"""Files of TSPLIB, CVRPLIB, OPLib and VRPLIB, with the solutions stored beside them."""
