"""Alarms: what is wrong in the fleet, judged once for all nodes, and told to people once."""
