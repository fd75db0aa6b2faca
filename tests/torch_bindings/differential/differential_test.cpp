// Compares every collective on tensors, in every form and with 1 to 4 ranks, with a serial
// reference.
#include "suite.hpp"

namespace hvd {
namespace {

using test::NamedCase;

// GoogleTest owns the object and ends the jobs when all tests have run.
auto* const jobs =
    static_cast<test::Jobs*>(testing::AddGlobalTestEnvironment(new test::Jobs));  // NOLINT

class Differential : public testing::TestWithParam<std::tuple<NamedCase, int>> {};

TEST_P(Differential, EqualsTheSerialReference) {
  const auto& [that, ranks] = GetParam();
  jobs->run(ranks, that.body);
}

std::string name_of(const testing::TestParamInfo<Differential::ParamType>& info) {
  return std::get<0>(info.param).name + "_np" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Collective, Differential,
                         testing::Combine(testing::ValuesIn(test::collective_cases()),
                                          testing::Values(1, 2, 3, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Sparse, Differential,
                         testing::Combine(testing::ValuesIn(test::sparse_cases()),
                                          testing::Values(1, 2, 3, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Join, Differential,
                         testing::Combine(testing::ValuesIn(test::join_cases()),
                                          testing::Values(1, 2, 3, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Error, Differential,
                         testing::Combine(testing::ValuesIn(test::error_cases()),
                                          testing::Values(1, 2, 3, 4)),
                         name_of);

}  // namespace
}  // namespace hvd
