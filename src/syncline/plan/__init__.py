"""`syncline plan`: predicts how fast a model would train on a cluster, for each way to run it, and recommends one."""
