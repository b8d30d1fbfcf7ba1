"""Examples of your own parts; start runs that use them from the folder above this one."""
