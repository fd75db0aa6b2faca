#include "net/crypto.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <hvd/core/error.hpp>

namespace hvd::net {

Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  Mac mac{};
  std::size_t size = 0;
  const unsigned char* const done =
      EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(),
                reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                reinterpret_cast<unsigned char*>(mac.data()), mac.size(), &size);
  if (done == nullptr || size != mac.size()) {
    throw Error(Errc::internal, "OpenSSL has no HMAC-SHA256");
  }
  return mac;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> out) {
  if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) != 1) {
    throw Error(Errc::resource, "the system's random generator failed");
  }
}

void wipe(std::span<std::byte> bytes) noexcept { OPENSSL_cleanse(bytes.data(), bytes.size()); }

}  // namespace hvd::net
