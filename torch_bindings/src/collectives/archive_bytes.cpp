#include "collectives/archive_bytes.hpp"

#include <cctype>
#include <cstring>

#include <caffe2/serialize/in_memory_adapter.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

namespace {

// In TorchScript source, every function, method and `__setstate__` begins with this word.
constexpr std::string_view kFunction = "def";

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool defines_function(std::string_view source) {
  for (std::size_t at = source.find(kFunction); at != std::string_view::npos;
       at = source.find(kFunction, at + 1)) {
    const std::size_t after = at + kFunction.size();
    const bool begins = at == 0 || !is_word_character(source[at - 1]);
    const bool ends = after == source.size() || !is_word_character(source[after]);
    if (begins && ends) return true;
  }
  return false;
}

void require_data_only(std::span<const std::byte> bytes, const std::string& what) {
  caffe2::serialize::PyTorchStreamReader reader(
      std::make_shared<caffe2::serialize::MemoryReadAdapter>(bytes.data(),
                                                             static_cast<off_t>(bytes.size())));
  for (const std::string& record : reader.getAllRecords()) {
    if (record.rfind("code/", 0) != 0 || !record.ends_with(".py")) continue;
    const auto [data, size] = reader.getRecord(record);
    if (defines_function({static_cast<const char*>(data.get()), size})) {
      throw Error(Errc::protocol,
                  fmt::format("{}: the archive has TorchScript code in it ({}), and only data is "
                              "taken",
                              what, record));
    }
  }
}

}  // namespace

Bytes bytes_of(torch::serialize::OutputArchive& archive) {
  Bytes bytes;
  archive.save_to([&bytes](const void* data, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
    return size;
  });
  return bytes;
}

torch::serialize::InputArchive archive_of(std::span<const std::byte> bytes, const std::string& what,
                                          std::optional<torch::Device> device) {
  if (bytes.empty()) throw Error(Errc::protocol, fmt::format("{}: nothing was saved", what));
  try {
    require_data_only(bytes, what);
    torch::serialize::InputArchive archive;
    archive.load_from(reinterpret_cast<const char*>(bytes.data()), bytes.size(), device);
    return archive;
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw Error(Errc::protocol,
                fmt::format("{}: not a torch archive: {}", what, error.what_without_backtrace()));
  } catch (const std::exception& error) {  // the parsers of LibTorch throw these
    throw Error(Errc::protocol, fmt::format("{}: not a torch archive: {}", what, error.what()));
  }
}

}  // namespace hvd::detail
