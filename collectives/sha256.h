// SHA-256 (FIPS 180-4) and HMAC over it (FIPS 198-1): proofs that two sides know the same token.
#pragma once

#include <string>

namespace zero {

// 32 bytes, not hexadecimal.
std::string Sha256(const std::string& message);
std::string HmacSha256(const std::string& key, const std::string& message);

}  // namespace zero
