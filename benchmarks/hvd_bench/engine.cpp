#include "engine.hpp"

#include <hvd/core/config.hpp>

namespace hvd::bench {

Engine::Engine() : session_(Config::from_environment()), host_(make_host_engine(session_)) {}

void Engine::allreduce(std::byte* data, std::int64_t count, const Options& options) {
  const TensorSlice tensor{data, data, count};
  AllreduceCall call;
  call.tensors = {&tensor, 1};
  call.dtype = options.dtype;
  call.op = options.op;
  host_.backend->allreduce(call, Clock::now() + session_.config().collective_timeout);
}

}  // namespace hvd::bench
