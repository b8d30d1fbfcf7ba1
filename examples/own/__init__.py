"""Parts of your own. Start runs that use them from the folder `examples`, so that Python finds the module `own`."""
