"""Parts of the compiled core, included by _core.pyx; no Python module. The file lets coverage find them."""
