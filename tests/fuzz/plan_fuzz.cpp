// The plan, as a user writes it or a file keeps it.
#include <string_view>

#include "check.hpp"
#include "cost/plan.hpp"

using hvd::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const hvd::Plan plan = hvd::Plan::parse(text);
    check(hvd::Plan::parse(plan.text()) == plan);
    check(hvd::Plan::parse(plan.text()).text() == plan.text());
  } catch (const hvd::Error& error) {
    check(error.code() == hvd::Errc::invalid_argument);
  }
  return 0;
}
