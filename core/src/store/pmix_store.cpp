// Implements a store on the PMIx server of mpirun or srun (PMIx Standard 4.1, chapters 6 and 7).
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>

#include <fmt/format.h>
#include <pmix.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/store.hpp>

#include "config/environment.hpp"
#include "net/blocking_io.hpp"
#include "store/store_protocol.hpp"

namespace hvd {
namespace {

// The launcher's daemons carry the values, and are made for addresses, not for data.
constexpr std::size_t kMaxPmixValue = 4096;
constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{100};

// A process has one PMIx client, and so one object of this class. It stays connected until the
// process ends: Open MPI 4 cannot be initialised in a process that has left PMIx once (its job data
// is gone).
class PmixClient {
 public:
  PmixClient() : connected_(PMIx_Init(&self_, nullptr, 0) == PMIX_SUCCESS), owner_(::getpid()) {}
  ~PmixClient() {
    // A forked child has the memory of the connection, but not the thread that serves it.
    if (connected_ && ::getpid() == owner_) PMIx_Finalize(nullptr, 0);
  }
  PmixClient(const PmixClient&) = delete;
  PmixClient& operator=(const PmixClient&) = delete;

  [[nodiscard]] bool connected() const noexcept { return connected_; }
  [[nodiscard]] const pmix_proc_t& self() const noexcept { return self_; }

 private:
  pmix_proc_t self_{};
  bool connected_;
  pid_t owner_;
};

PmixClient& pmix_client() {
  static PmixClient client;
  return client;
}

std::string describe(pmix_status_t status) { return PMIx_Error_string(status); }

/// Implements a store in which one rank, `leader`, sets keys and all ranks read them.
class PmixStore final : public Store {
 public:
  PmixStore(const pmix_proc_t& self, int leader, std::string prefix)
      : self_(self), leader_(static_cast<pmix_rank_t>(leader)), prefix_(std::move(prefix)) {}

  void set(std::string_view key, std::span<const std::byte> value, Deadline) override {
    if (self_.rank != leader_) {
      throw Error(Errc::unsupported, fmt::format("only rank {} sets keys through PMIx", leader_));
    }
    if (value.size() > kMaxPmixValue) {
      throw Error(Errc::invalid_argument,
                  fmt::format("a value of {} bytes is too long for PMIx", value.size()));
    }
    Bytes copy(value.begin(), value.end());
    pmix_value_t wrapped{};
    wrapped.type = PMIX_BYTE_OBJECT;
    wrapped.data.bo.bytes = reinterpret_cast<char*>(copy.data());
    wrapped.data.bo.size = copy.size();
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, full(key).c_str(), &wrapped);
    if (status == PMIX_SUCCESS) status = PMIx_Commit();
    if (status != PMIX_SUCCESS) {
      throw Error(Errc::resource,
                  fmt::format("PMIx does not take '{}': {}", key, describe(status)));
    }
  }

  std::optional<Bytes> get(std::string_view key, Deadline) override { return ask(full(key)); }

  // PMIx answers "not found" once the leader has published any key, so this asks again.
  Bytes wait(std::string_view key, Deadline deadline) override {
    const std::string name = full(key);
    std::chrono::milliseconds pause = kFirstPause;
    for (;;) {
      if (std::optional<Bytes> value = ask(name)) return std::move(*value);
      if (Clock::now() >= deadline) break;
      net::pause_until(std::min(deadline, Clock::now() + pause), never_);
      pause = std::min(pause * 2, kLongestPause);
    }
    throw Error(Errc::timeout, fmt::format("rank {} did not set '{}' through PMIx", leader_, key));
  }

 private:
  [[nodiscard]] std::string full(std::string_view key) const {
    detail::check_store_key(key);
    return prefix_ + std::string(key);
  }

  [[nodiscard]] std::optional<Bytes> ask(const std::string& name) const {
    pmix_proc_t source = self_;
    source.rank = leader_;
    int seconds = 1;  // the shortest timeout of PMIx
    bool yes = true;
    std::array<pmix_info_t, 2> options;
    PMIX_INFO_LOAD(&options[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
    PMIX_INFO_LOAD(&options[1], PMIX_GET_REFRESH_CACHE, &yes, PMIX_BOOL);
    pmix_value_t* value = nullptr;
    const pmix_status_t status =
        PMIx_Get(&source, name.c_str(), options.data(), options.size(), &value);
    for (pmix_info_t& option : options) PMIX_INFO_DESTRUCT(&option);
    if (status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT) return std::nullopt;
    if (status != PMIX_SUCCESS || value == nullptr) {
      throw Error(Errc::peer_lost, fmt::format("PMIx is gone: {}", describe(status)));
    }
    std::optional<Bytes> result;
    if (value->type == PMIX_BYTE_OBJECT) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
      result.emplace(bytes, bytes + value->data.bo.size);
    }
    PMIX_VALUE_RELEASE(value);
    if (!result) throw Error(Errc::protocol, fmt::format("PMIx key '{}' holds no bytes", name));
    return result;
  }

  pmix_proc_t self_;
  pmix_rank_t leader_;
  std::string prefix_;
  net::Interrupt never_;
};

/// Returns a number that the server has for `rank`, or -1.
int ask_number(const pmix_proc_t& self, pmix_rank_t rank, const char* key) {
  pmix_proc_t source = self;
  source.rank = rank;
  pmix_value_t* value = nullptr;
  if (PMIx_Get(&source, key, nullptr, 0, &value) != PMIX_SUCCESS || value == nullptr) return -1;
  std::int64_t number = -1;
  switch (value->type) {
    case PMIX_UINT32:
      number = value->data.uint32;
      break;
    case PMIX_UINT16:
      number = value->data.uint16;
      break;
    case PMIX_INT:
      number = value->data.integer;
      break;
    case PMIX_PROC_RANK:
      number = value->data.rank;
      break;
    default:
      break;
  }
  PMIX_VALUE_RELEASE(value);
  return number > std::numeric_limits<int>::max() ? -1 : static_cast<int>(number);
}

}  // namespace

std::optional<detail::PmixRank> detail::ask_pmix() {
  PmixClient& client = pmix_client();
  if (!client.connected()) return std::nullopt;
  const pmix_proc_t& self = client.self();
  PmixRank found;
  found.rank = static_cast<int>(self.rank);
  found.size = ask_number(self, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
  found.local_rank = ask_number(self, self.rank, PMIX_LOCAL_RANK);
  found.local_size = ask_number(self, PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE);
  if (found.size < 1) return std::nullopt;
  return found;
}

std::shared_ptr<Store> connect_pmix_store(const Config& config) {
  PmixClient& client = pmix_client();
  if (!client.connected()) return nullptr;
  const int leader = config.ranks.empty() ? 0 : config.ranks.front();
  return std::make_shared<PmixStore>(client.self(), leader, fmt::format("hvd/{}/", config.epoch));
}

}  // namespace hvd
