// Decodes what a process of hvd::spawn gets from its parent.
#include "check.hpp"
#include "spawn/spawn_state.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd::launcher;
  hvd::fuzz::check_canonical(hvd::fuzz::input(data, size), decode_spawn_path,
                             [](const SpawnPath& path) { return encode(path); });
  return 0;
}
