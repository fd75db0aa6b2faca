// Parses the plan as a user or a file gives it.
#include <string_view>

#include "check.hpp"
#include "tuning/algorithm_plan.hpp"

using hvd::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const hvd::detail::AlgorithmPlan plan = hvd::detail::AlgorithmPlan::parse(text);
    check(hvd::detail::AlgorithmPlan::parse(plan.text()) == plan);
    check(hvd::detail::AlgorithmPlan::parse(plan.text()).text() == plan.text());
  } catch (const hvd::Error& error) {
    check(error.code() == hvd::Errc::invalid_argument);
  }
  return 0;
}
