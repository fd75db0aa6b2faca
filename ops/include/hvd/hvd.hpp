// Declares all of hvd that needs no LibTorch: the default context, and collectives on plain memory.
#pragma once

#include <hvd/core/standard.hpp>

#if __cplusplus >= 202002L

#include <memory>
#include <string>
#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/core/error.hpp>
#include <hvd/core/stop.hpp>
#include <hvd/core/store.hpp>
#include <hvd/core/timeline.hpp>
#include <hvd/ops/array_collectives.hpp>
#include <hvd/ops/collectives.hpp>
#include <hvd/ops/default_context.hpp>
#include <hvd/ops/grouped_collectives.hpp>
#include <hvd/ops/join.hpp>
#include <hvd/ops/point_to_point.hpp>
#include <hvd/ops/threads.hpp>
#include <hvd/ops/user_reduction.hpp>

namespace hvd {

/// Builds a context: joins the job that `config` describes and picks transports and backends, the
/// same on every rank. `store` replaces the rendezvous (ranks as threads share a hash store).
/// Collective.
[[nodiscard]] std::unique_ptr<Context> make_context(
    const Config& config = Config::from_environment(), std::shared_ptr<Store> store = nullptr);

/// Begin and end the default context of this process, for programs that need only one. `init` is
/// collective and may follow `shutdown`; a second `init` without one does nothing. Any thread may
/// call these functions, but not concurrently. In the body of `threads` (hvd/ops/threads.hpp),
/// `init` does nothing, and `shutdown` shuts down the context of the calling thread. In an elastic
/// job `init` does nothing, because `elastic_run` (hvd/elastic.hpp) makes the default context.
void init(const Config& config = Config::from_environment());
void shutdown();
[[nodiscard]] bool is_initialized() noexcept;
/// All functions below throw Errc::not_initialized before `init`, as `context()` does. These are
/// the methods of `Context` and the fields of `Topology` of the same names.
[[nodiscard]] int rank();
[[nodiscard]] int size();
[[nodiscard]] int local_rank();
[[nodiscard]] int local_size();
[[nodiscard]] int cross_rank();
[[nodiscard]] int cross_size();
[[nodiscard]] Stats stats();
/// In an elastic job this is `elastic::job_stops`: a rank that was asked to stop leaves and the
/// others go on, unless hvdrun was asked. Otherwise it is that of `Context`.
[[nodiscard]] bool stop_requested();
/// These are the methods of `Context` of the same names.
void step_done();
[[nodiscard]] ProcessSet add_process_set(const std::vector<int>& ranks);
void remove_process_set(const ProcessSet& set);
/// All ranks give the same `name`, and each writes `timeline_path(name, rank())`.
void start_timeline(const std::string& name);
void stop_timeline();

}  // namespace hvd

#endif
