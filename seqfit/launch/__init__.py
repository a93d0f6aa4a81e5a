"""Starts training as several processes: on this machine, or as a job of a Slurm cluster, which it then follows."""
