"""Files of TSPLIB, CVRPLIB, OPLib and VRPLIB, and the solutions that lie beside them."""
