// Reads the history of a training that an estimator's model and history.json hold.
#include <string>
#include <string_view>

#include <hvd/estimator/history.hpp>

#include "check.hpp"

using hvd::History;
using hvd::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const std::string once = History::from_json(json).to_json();
    check(History::from_json(once).to_json() == once);
  } catch (const hvd::Error& error) {
    check(error.code() == hvd::Errc::protocol);
  }
  return 0;
}
