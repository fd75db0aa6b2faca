#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/elastic_messages.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd::detail {
namespace {

constexpr std::uint8_t kWaits = 'w';
constexpr std::uint8_t kAssignment = 'a';
constexpr std::uint8_t kChange = 'c';
constexpr std::uint8_t kLeave = 'l';
constexpr std::uint8_t kStop = 's';

// The `fault_in` functions return what is wrong with a message, or an empty text.

std::string fault_in(const Waits& waits) {
  if (waits.blames < -1) return fmt::format("it blames rank {}", waits.blames);
  if (waits.blames >= 0 && waits.generation == 0) return "it blames a rank of no generation";
  if (waits.blamed_left && waits.blames < 0) return "it says that nobody has left";
  if (waits.start_failed && waits.generation == 0) return "the start of no generation has failed";
  return {};
}

std::string fault_in(const Assignment& assignment) {
  if (assignment.generation == 0) return "generation 0";
  if (assignment.variables.size() > kMaxElasticVariables) {
    return fmt::format("{} variables", assignment.variables.size());
  }
  std::set<std::string_view> names;
  for (const std::string_view variable : assignment.variables) {
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.empty() || name.size() == variable.size() || !is_graphic(name)) {
      return "a variable is not like NAME=value";
    }
    if (variable.size() > kMaxElasticVariable) return fmt::format("{} is too long", name);
    if (variable.find('\0') != std::string_view::npos) return fmt::format("{} has a NUL", name);
    if (!names.insert(name).second) return fmt::format("{} is there twice", name);
  }
  return {};
}

Bytes finished(WireWriter& to, const std::string& fault) {
  Bytes bytes = to.take();
  const bool too_long = bytes.size() > kMaxElasticMessage;
  if (!too_long && fault.empty()) return bytes;
  throw Error(Errc::invalid_argument,
              fmt::format("a message of an elastic job: {}",
                          too_long ? fmt::format("{} bytes", bytes.size()) : fault));
}

bool read_flag(WireReader& from) {
  const std::uint8_t flag = from.u8();
  if (flag > 1) from.fail("a flag is neither 0 nor 1");
  return flag == 1;
}

WireReader reader_of(std::span<const std::byte> bytes) {
  WireReader from(bytes, "message of an elastic job");
  if (bytes.size() > kMaxElasticMessage) from.fail("it is too long");
  return from;
}

Assignment read_assignment(WireReader& from) {
  Assignment assignment;
  assignment.generation = from.u32();
  assignment.variables.resize(from.count(sizeof(std::uint32_t)));
  for (std::string& variable : assignment.variables) variable = from.text(kMaxElasticVariable);
  if (const std::string fault = fault_in(assignment); !fault.empty()) from.fail(fault);
  return assignment;
}

}  // namespace

Bytes encode(const Waits& waits) {
  WireWriter to;
  to.u8(kWaits);
  to.u32(waits.generation);
  to.i32(waits.blames);
  to.u8(waits.blamed_left ? 1 : 0);
  to.u8(waits.leaves ? 1 : 0);
  to.u8(waits.start_failed ? 1 : 0);
  return finished(to, fault_in(waits));
}

Waits decode_waits(std::span<const std::byte> bytes) {
  WireReader from = reader_of(bytes);
  if (from.u8() != kWaits) from.fail("a worker says only that it waits");
  Waits waits;
  waits.generation = from.u32();
  waits.blames = from.i32();
  waits.blamed_left = read_flag(from);
  waits.leaves = read_flag(from);
  waits.start_failed = read_flag(from);
  if (const std::string fault = fault_in(waits); !fault.empty()) from.fail(fault);
  from.finish();
  return waits;
}

Bytes encode(const ElasticOrder& order) {
  WireWriter to;
  const auto* const assignment = std::get_if<Assignment>(&order);
  if (assignment == nullptr) {
    const bool stops = std::holds_alternative<Stop>(order);
    to.u8(std::holds_alternative<Change>(order) ? kChange : stops ? kStop : kLeave);
    return to.take();
  }
  to.u8(kAssignment);
  to.u32(assignment->generation);
  to.u32(static_cast<std::uint32_t>(assignment->variables.size()));
  for (const std::string& variable : assignment->variables) to.text(variable);
  return finished(to, fault_in(*assignment));
}

ElasticOrder decode_elastic_order(std::span<const std::byte> bytes) {
  WireReader from = reader_of(bytes);
  ElasticOrder order;
  switch (from.u8()) {
    case kAssignment:
      order = read_assignment(from);
      break;
    case kChange:
      order = Change{};
      break;
    case kLeave:
      order = Leave{};
      break;
    case kStop:
      order = Stop{};
      break;
    default:
      from.fail("unknown kind");
  }
  from.finish();
  return order;
}

}  // namespace hvd::detail
