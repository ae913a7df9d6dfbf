"""What evaluation shares between methods, processes and machines."""
