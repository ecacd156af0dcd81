-- An environment module (Lmod; Tcl modules have the same in carrack.tcl) for a carrack unpacked below `prefix`:
--   make tarball && tar -C /opt/carrack --strip-components=1 -xJf target/tarball/carrack-*-linux.tar.xz
local prefix = "/opt/carrack"

help([[carrack copies files and directory trees between hosts and storage systems.

  carrack cp -r data host:/archive
  man carrack]])
whatis("Name: carrack")
whatis("Description: moves big data sets between storage systems")

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
-- Programs for far hosts that have none (make static).
setenv("CARRACK_BOOTSTRAP_DIR", pathJoin(prefix, "lib/carrack/bootstrap"))
