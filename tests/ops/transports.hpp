// Runs tests over every transport, with ranks as threads. With mpi/mpi_transports.cpp in place of
// transports.cpp, it is MPI's transport, with ranks as processes that mpirun started.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/transport.hpp>

namespace hvd::test {

enum class Kind { in_process, tcp, mpi };

[[nodiscard]] std::string_view to_string(Kind kind);

/// Returns a deadline so late that only a test that fails waits for it.
[[nodiscard]] Deadline soon();

/// Joins the transport of one rank over an existing session. Not for in_process.
[[nodiscard]] std::unique_ptr<Transport> make_transport(Kind kind, Session& session);

using RankBody = std::function<void(int rank, std::unique_ptr<Transport> transport)>;

/// Runs `body` on one thread per rank, each with its session where the kind needs one; returns what
/// each rank threw.
[[nodiscard]] std::vector<std::exception_ptr> run_ranks(Kind kind, int size, const RankBody& body);
/// Does the same; a rank that throws fails the test.
void expect_ranks(Kind kind, int size, const RankBody& body);

/// The base of suites that run once per transport and number of ranks.
class EveryTransport : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  [[nodiscard]] static Kind kind() { return std::get<0>(GetParam()); }
  [[nodiscard]] static int size() { return std::get<1>(GetParam()); }
};

[[nodiscard]] std::string parameter_name(const testing::TestParamInfo<std::tuple<Kind, int>>& info);

/// Returns every kind that can run here, with each of these numbers of ranks that can run here.
[[nodiscard]] std::vector<std::tuple<Kind, int>> transport_parameters(
    const std::vector<int>& sizes);

#define HVD_ON_EVERY_TRANSPORT(suite, ...)                                                      \
  INSTANTIATE_TEST_SUITE_P(Transports, suite,                                                   \
                           testing::ValuesIn(transport_parameters(rank_counts({__VA_ARGS__}))), \
                           parameter_name)

}  // namespace hvd::test
