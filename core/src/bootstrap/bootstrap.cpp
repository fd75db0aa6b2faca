#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/bootstrap.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd {
namespace {

/// The time that a rank waits for rank 0's answer beyond its own deadline, because the answer names
/// the ranks that are missing.
constexpr std::chrono::milliseconds kAnswerTime{1'000};
/// The longest time that a rank takes to ask the store which ranks are missing.
constexpr std::chrono::milliseconds kMissingRanksTime{500};
constexpr std::size_t kMaxText = 4096;
constexpr auto kLastErrc = static_cast<std::uint8_t>(Errc::internal);

/// Rank 0's answer is a value, or an error that every rank throws.
enum class AnswerKind : std::uint8_t { value = 0, error = 1 };

Bytes encode_value(std::string_view value) {
  WireWriter out;
  out.u8(static_cast<std::uint8_t>(AnswerKind::value));
  out.raw(detail::bytes_of(value));
  return out.take();
}

Bytes encode_error(const Error& error) {
  const Fault& fault = error.fault();
  WireWriter out;
  out.u8(static_cast<std::uint8_t>(AnswerKind::error));
  out.u8(static_cast<std::uint8_t>(error.code()));
  out.i32(fault.rank);
  for (const std::string* text : {&fault.host, &fault.cause, &fault.phase}) {
    out.text(std::string_view(*text).substr(0, kMaxText));
  }
  out.i64(fault.elapsed.count());
  return out.take();
}

/// Throws the error that rank 0 published, and Errc::protocol for a malformed answer.
std::string take_answer(std::span<const std::byte> bytes) {
  WireReader in(bytes, "rank 0's answer");
  const std::uint8_t kind = in.u8();
  if (kind == static_cast<std::uint8_t>(AnswerKind::value))
    return std::string(detail::text_of(in.raw(in.remaining())));
  if (kind != static_cast<std::uint8_t>(AnswerKind::error)) in.fail("unknown kind");
  const std::uint8_t code = in.u8();
  if (code > kLastErrc) in.fail("unknown error code");
  Fault fault;
  fault.rank = in.i32();
  for (std::string* text : {&fault.host, &fault.cause, &fault.phase}) *text = in.text(kMaxText);
  fault.elapsed = std::chrono::milliseconds(in.i64());
  in.finish();
  const bool plain = fault.phase.empty();  // an error without a fault has a message only
  if (plain) throw Error(static_cast<Errc>(code), fault.cause);
  throw Error(static_cast<Errc>(code), std::move(fault));
}

}  // namespace

Bootstrap::Bootstrap(Store& store, int rank, int size, Deadline deadline, std::string job)
    : store_(&store),
      rank_(rank),
      size_(size),
      start_(Clock::now()),
      deadline_(deadline),
      job_(std::move(job)) {}

std::string Bootstrap::share(std::string_view label, const Answer& answer) const {
  return rank_ == 0 ? publish(label, answer) : take_answer(await(label));
}

std::string Bootstrap::decide(std::string_view label, std::string_view record,
                              const Decide& decide) const {
  store_->set(record_prefix(label) + std::to_string(rank_), detail::bytes_of(record), deadline_);
  return share(label, [&] { return decide(gather(label)); });
}

std::vector<std::string> Bootstrap::exchange(std::string_view label,
                                             std::string_view record) const {
  const std::string all = decide(label, record, [](const std::vector<std::string>& records) {
    WireWriter out;
    for (const std::string& one : records) out.text(one);
    return std::string(detail::text_of(out.take()));
  });
  WireReader in(detail::bytes_of(all), "the records of all ranks");
  std::vector<std::string> records(static_cast<std::size_t>(size_));
  for (std::string& one : records) one = in.text(in.remaining());
  in.finish();
  return records;
}

void Bootstrap::barrier(std::string_view label) const {
  decide(label, {}, [](const std::vector<std::string>&) { return std::string(); });
}

std::string Bootstrap::publish(std::string_view label, const Answer& answer) const {
  try {
    std::string value = answer();
    store_->set(key(label), encode_value(value), deadline_);
    return value;
  } catch (const Error& error) {
    try {
      store_->set(key(label), encode_error(error), Clock::now() + kAnswerTime);
    } catch (const Error&) {
      // The store may be unreachable. The others then run into their own deadlines.
    }
    throw;
  }
}

Bytes Bootstrap::await(std::string_view label) const {
  try {
    return store_->wait(key(label), deadline_ + kAnswerTime);
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
  }
  std::vector<int> missing = missing_ranks(label);
  if (missing.empty()) missing.push_back(0);  // rank 0 has not answered
  fail(missing);
}

std::vector<std::string> Bootstrap::gather(std::string_view label) const {
  try {
    std::vector<std::string> records;
    for (const Bytes& record : store_->wait_all(record_prefix(label), size_, deadline_)) {
      records.emplace_back(detail::text_of(record));
    }
    return records;
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
  }
  fail(missing_ranks(label));
}

std::string Bootstrap::key(std::string_view label) const {
  return fmt::format("{}/{}", job_, label);
}

std::string Bootstrap::record_prefix(std::string_view label) const { return key(label) + '/'; }

std::vector<int> Bootstrap::missing_ranks(std::string_view label) const {
  std::vector<int> missing;
  const std::string prefix = record_prefix(label);
  const Deadline last = Clock::now() + kMissingRanksTime;
  try {
    // If this rank has published no record, no rank does, and only rank 0's answer is awaited.
    const bool gathered = store_->get(prefix + std::to_string(rank_), last).has_value();
    for (int rank = 0; gathered && rank < size_; ++rank) {
      if (!store_->get(prefix + std::to_string(rank), last)) missing.push_back(rank);
    }
  } catch (const Error&) {
    // The store is too slow to be asked for the records of all ranks.
  }
  return missing;
}

void Bootstrap::fail(const std::vector<int>& missing) const {
  Fault fault;
  fault.rank = missing.size() == 1 ? missing.front() : -1;
  if (missing.empty()) {
    fault.cause = "some ranks did not come, and the store does not say which";
  } else if (missing.size() == 1) {
    fault.cause = "it did not come";
  } else {
    fault.cause = fmt::format("{} did not come", detail::ranks_text(missing));
  }
  fault.phase = "init";
  fault.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  throw Error(Errc::timeout, std::move(fault));
}

}  // namespace hvd
