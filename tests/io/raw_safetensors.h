// Safetensors files put together by hand, so that they can be wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

// Eight bytes of `length`, little-endian.
inline std::string LengthBytes(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

inline std::string RawFile(const std::string& header, const std::string& data = "") {
  return LengthBytes(header.size()) + header + data;
}

// One entry: "name":{"dtype":...,"shape":[...],"data_offsets":[...]}
inline std::string Entry(const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& offsets) {
  return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}
