"""The engine of a node: it claims leases, takes one Step for each, and settles them in batches."""
