from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Hvd(CMakePackage):
    """Data-parallel training of LibTorch models on many processes, from C++."""

    url = "file:///hvd-0.1.0.tar.gz"  # the release's archive
    license("Apache-2.0")

    version("0.1.0")

    variant("mpi", default=True, description="The MPI backend")
    variant("torch", default=True, description="The LibTorch bindings")
    variant("nccl", default=False, description="The NCCL backend")
    variant("shared", default=True, description="Shared libraries")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("boost@1.74: +system")
    depends_on("openssl@3:")
    depends_on("fmt@9:")
    depends_on("highway@1:")
    depends_on("cli11@2.1:")
    depends_on("nlohmann-json@3.11:")
    depends_on("yaml-cpp@0.7:")
    depends_on("hwloc@2.5:")
    depends_on("mpi@3:", when="+mpi")
    depends_on("py-torch@2.6:", when="+torch")
    depends_on("py-torch+cuda", when="+torch+nccl")  # the user then also gives ^py-torch cuda_arch=...
    depends_on("nccl", when="+nccl")
    depends_on("cuda", when="+nccl")

    generator("ninja")

    def cmake_args(self):
        arguments = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("HVD_WITH_MPI", "mpi"),
            self.define_from_variant("HVD_WITH_TORCH", "torch"),
            self.define_from_variant("HVD_WITH_NCCL", "nccl"),
            self.define("HVD_WITH_TORCH_CUDA", self.spec.satisfies("+torch+nccl")),
            self.define("HVD_WITH_ARROW", False),
            self.define("HVD_WITH_PYTHON", False),
            self.define("HVD_WITH_PMIX", False),
            self.define("HVD_BUILD_TESTS", False),
            self.define("HVD_BUILD_EXAMPLES", False),
            self.define("HVD_BUILD_BENCHMARKS", False),
            self.define("HVD_CCACHE", False),
        ]
        if self.spec.satisfies("+torch"):
            # This is torch/share/cmake, which FindLibTorch knows.
            torch = self.spec["py-torch"].package.cmake_prefix_paths[0]
            arguments.append(self.define("LibTorch_ROOT", torch))
        return arguments
