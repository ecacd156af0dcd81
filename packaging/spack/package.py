"""A package for Spack: copy it to REPOSITORY/packages/carrack/package.py."""

from spack.package import *


class Carrack(CargoPackage):
    """Moves big data sets between storage systems, by the layout of parallel file systems."""

    homepage = "https://github.com/carrack/carrack"
    git = "https://github.com/carrack/carrack.git"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    variant("fabric", default=False, description="Objects by RMA, with libfabric")

    depends_on("rust@1.88:", type="build")
    depends_on("c", type="build")
    depends_on("libfabric", when="+fabric")
    depends_on("hwloc", type="run")
    depends_on("openssh", type="run")

    build_directory = "crates/carrack"

    @property
    def build_args(self):
        return ["--locked"] if self.spec.satisfies("+fabric") else ["--locked", "--no-default-features"]
