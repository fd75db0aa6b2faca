#include "open_mpi.hpp"

#include <string>

#include "exit_codes.hpp"
#include "program.hpp"
#include "this_host.hpp"

namespace hvd::launcher {
namespace {

bool there_is(const std::string& program, std::string_view path) {
  try {
    static_cast<void>(find_program(program, path));
    return true;
  } catch (const LaunchError&) {
    return false;
  }
}

}  // namespace

OpenMpi open_mpi(const Variables& own) {
  const std::string_view path = value_of(own, "PATH");
  if (!there_is("mpirun", path)) return OpenMpi::none;
  const std::string mpirun = find_program("mpirun", path);
  // Each has the launcher it is made of beside it.
  const std::string folder = mpirun.substr(0, mpirun.rfind('/') + 1);
  if (there_is(folder + "prterun", path)) return OpenMpi::prrte;
  return there_is("orterun", path) ? OpenMpi::orte : OpenMpi::none;
}

}  // namespace hvd::launcher
