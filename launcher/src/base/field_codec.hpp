// Encodes and decodes structures from one list of their fields, so that both directions agree.
//
// For a structure T, namespace hvd::launcher defines a function that lists its fields in the order
// of their encoding, and what has to hold for fields that were read:
//   void fields(Is<T> auto& value, auto& codec) {
//     codec(value.size, value.name);
//     codec.check(value.size > 0, "no size");
//   }
// For an enumeration it defines its last enumerator, `kLast<T>`.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd::launcher {

template <typename Value, typename T>
concept Is = std::same_as<std::remove_const_t<Value>, T>;

template <typename Enum>
extern const Enum kLast;

template <typename T>
requires std::is_empty_v<T>
void fields(T& /*value*/, auto& /*codec*/) {}

class FieldEncoder {
 public:
  explicit FieldEncoder(WireWriter& to) : to_(to) {}
  void operator()(const auto&... values) { (put(values), ...); }
  void check(bool /*holds*/, const char* /*fault*/) {}

 private:
  void put(bool value) { to_.u8(value ? 1 : 0); }
  void put(std::uint8_t value) { to_.u8(value); }
  void put(std::uint16_t value) { to_.u16(value); }
  void put(std::uint32_t value) { to_.u32(value); }
  void put(std::uint64_t value) { to_.u64(value); }
  void put(std::int32_t value) { to_.i32(value); }
  void put(std::chrono::milliseconds value) { to_.i64(value.count()); }
  void put(const std::string& value) { to_.text(value); }
  void put(const Bytes& value) { to_.blob(value); }
  void put(const Secret& value) { to_.raw(value.bytes()); }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      put(static_cast<std::uint8_t>(value));
    } else {
      fields(value, *this);
    }
  }

  WireWriter& to_;
};

/// Throws Errc::protocol, as the reader does.
class FieldDecoder {
 public:
  explicit FieldDecoder(WireReader& from) : from_(from) {}
  void operator()(auto&... values) { (get(values), ...); }
  void check(bool holds, const char* fault) {
    if (!holds) from_.fail(fault);
  }

 private:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  void get(bool& value) {
    const std::uint8_t flag = from_.u8();
    check(flag <= 1, "a flag is neither 0 nor 1");
    value = flag == 1;
  }
  void get(std::uint8_t& value) { value = from_.u8(); }
  void get(std::uint16_t& value) { value = from_.u16(); }
  void get(std::uint32_t& value) { value = from_.u32(); }
  void get(std::uint64_t& value) { value = from_.u64(); }
  void get(std::int32_t& value) { value = from_.i32(); }
  void get(std::chrono::milliseconds& value) {
    constexpr std::int64_t kLongest = 1'000'000'000'000;
    const std::int64_t count = from_.i64();
    check(count >= 0 && count <= kLongest, "duration out of range");
    value = std::chrono::milliseconds{count};
  }
  void get(std::string& value) { value = from_.text(kNoLimit); }
  void get(Bytes& value) {
    const auto bytes = from_.blob(kNoLimit);
    value.assign(bytes.begin(), bytes.end());
  }
  void get(Secret& value) { value = Secret(from_.raw(Secret::kSize).first<Secret::kSize>()); }
  template <typename T>
  void get(std::optional<T>& value) {
    bool given = false;
    get(given);
    if (given) get(value.emplace());
  }
  template <typename T>
  void get(std::vector<T>& values) {
    static_assert(!std::is_enum_v<T> && (!std::is_arithmetic_v<T> || sizeof(T) >= 4));
    values.resize(from_.count(sizeof(std::uint32_t)));  // the least that any element takes
    for (T& value : values) get(value);
  }
  template <typename T>
  void get(T& value) {
    if constexpr (std::is_enum_v<T>) {
      const std::uint8_t number = from_.u8();
      check(number <= static_cast<std::uint8_t>(kLast<T>), "no such enumerator");
      value = static_cast<T>(number);
    } else {
      fields(value, *this);
    }
  }

  WireReader& from_;
};

}  // namespace hvd::launcher
