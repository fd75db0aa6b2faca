#include "plan/gpus.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>

#include <hvd/core/internal/text.hpp>

#include "plan/rank_environment.hpp"

namespace hvd::launcher {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_number_below(int limit, std::string_view text) {
  const auto value = detail::to_number<int>(text);
  return is_number(text) && value && *value < limit;
}

}  // namespace

int count_gpus(const std::filesystem::path& devices) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  std::error_code ended;
  for (std::filesystem::directory_iterator it(devices, ended), end; !ended && it != end;
       it.increment(ended)) {
    const std::string name = it->path().filename();
    if (name.starts_with(kPrefix) && is_number(std::string_view(name).substr(kPrefix.size()))) {
      ++count;
    }
  }
  return count;
}

int count_visible_gpus(const std::vector<std::string>& own, const std::filesystem::path& devices) {
  constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
  const int there = count_gpus(devices);
  if (!contains(own, kVisible)) return there;
  if (there == 0) return 0;
  // CUDA uses the list up to the first entry that is not a GPU. Entries are numbers, or names of
  // GPUs or of parts of GPUs.
  int count = 0;
  std::string_view rest = value_of(own, kVisible);
  while (!rest.empty()) {
    std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
    const bool named = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!named && !is_number_below(there, entry)) break;
    ++count;
  }
  return count;
}

}  // namespace hvd::launcher
