"""Instances from files and tables: TSPLIB, CVRPLIB, OPLib, CSV, the paper's test sets, and our own .npz.

from routing_gym import data

file = data.read_instance("berlin52.tsp")      # file.problem, file.instance: like any other
data.write_tour("mine.tour", file, actions)    # in the file's node numbers; returns the integer length
own = data.from_columns("CVRP", {"x": x, "y": y, "demand": demand, "capacity": 30})   # in your own units
"""

from routing_gym.data.npz import load_npz, save_npz
from routing_gym.data.own import OwnInstance, from_columns, read_csv
from routing_gym.data.paper import paper_test_set
from routing_gym.data.peers import PeerSet, load_peer_npz
from routing_gym.data.pickles import load_pickle
from routing_gym.data.tsplib.instance import FileInstance
from routing_gym.data.tsplib.reader import MAX_NODES, read_instance, write_instance
from routing_gym.data.tsplib.solutions import FileTour, read_solution, write_tour
from routing_gym.files import FileError, InvalidFile, UnsupportedFile

__all__ = [
    "MAX_NODES",
    "FileError",
    "FileInstance",
    "FileTour",
    "InvalidFile",
    "OwnInstance",
    "PeerSet",
    "UnsupportedFile",
    "from_columns",
    "load_npz",
    "load_peer_npz",
    "load_pickle",
    "paper_test_set",
    "read_csv",
    "read_instance",
    "read_solution",
    "save_npz",
    "write_instance",
    "write_tour",
]
