#%Module1.0
# The same as carrack.lua, for Environment Modules.
set prefix /opt/carrack

module-whatis "moves big data sets between storage systems"
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
setenv CARRACK_BOOTSTRAP_DIR $prefix/lib/carrack/bootstrap
