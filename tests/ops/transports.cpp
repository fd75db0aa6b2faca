#include "transports.hpp"

#include <utility>

#include <hvd_test/ranks.hpp>

#include <hvd/core/store.hpp>

namespace hvd::test {

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::in_process:
      return "in_process";
    case Kind::tcp:
      return "tcp";
    case Kind::mpi:
      return "mpi";
  }
  return "";
}

Deadline soon() { return Clock::now() + std::chrono::seconds(30); }

std::unique_ptr<Transport> make_transport(Kind, Session& session) {
  return make_tcp_transport(session);
}

std::vector<std::exception_ptr> run_ranks(Kind kind, int size, const RankBody& body) {
  if (kind == Kind::in_process) {
    auto transports = make_in_process_transports(size);
    return run_threads(
        size, [&](int rank) { body(rank, std::move(transports[static_cast<std::size_t>(rank)])); });
  }
  const auto store = make_hash_store();
  return run_threads(size, [&](int rank) {
    Session session(thread_config(rank, size), store);
    body(rank, make_transport(kind, session));
  });
}

void expect_ranks(Kind kind, int size, const RankBody& body) {
  const auto errors = run_ranks(kind, size, body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank]) continue;
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
    }
  }
}

std::vector<std::tuple<Kind, int>> transport_parameters(const std::vector<int>& sizes) {
  std::vector<std::tuple<Kind, int>> all;
  for (const Kind kind : {Kind::in_process, Kind::tcp}) {
    for (const int size : sizes) all.emplace_back(kind, size);
  }
  return all;
}

std::string parameter_name(const testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_" +
         std::to_string(std::get<1>(info.param));
}

}  // namespace hvd::test
