"""Parts of one's own, for runs that are started from the folder above this one."""
