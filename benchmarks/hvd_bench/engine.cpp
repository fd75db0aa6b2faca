#include "engine.hpp"

#include <cstdint>

#include <hvd/core/config.hpp>

namespace hvd::bench {

namespace {

/// Returns the settings of the environment with a new generation, because sessions of one process
/// that share a store need different ones.
Config of_next_generation() {
  static std::uint32_t sessions = 0;
  Config config = Config::from_environment();
  config.generation += ++sessions;
  return config;
}

}  // namespace

Engine::Engine() : session_(of_next_generation()), host_(make_host_engine(session_)) {}

void Engine::allreduce(std::byte* data, std::int64_t count, const Options& options) {
  const TensorSlice tensor{data, data, count};
  AllreduceCall call;
  call.tensors = {&tensor, 1};
  call.dtype = options.dtype;
  call.op = options.op;
  host_.backend->allreduce(call, Clock::now() + session_.config().collective_timeout);
}

}  // namespace hvd::bench
