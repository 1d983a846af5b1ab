#include "collectives/frame.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

// The same on every machine: least significant byte first.
template <class T>
void Put(std::string& to, T number) {
  for (size_t i = 0; i < sizeof(T); ++i) to.push_back(static_cast<char>(number >> (8 * i)));
}

template <class T>
T Take(const char* from) {
  T number = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    number |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(from[i])) << (8 * i));
  }
  return number;
}

}  // namespace

FrameWriter& FrameWriter::Number(uint64_t number) {
  Put(frame_.fields, number);
  return *this;
}

FrameWriter& FrameWriter::Text(const std::string& text) {
  Put(frame_.fields, static_cast<uint32_t>(text.size()));
  frame_.fields += text;
  return *this;
}

FrameWriter& FrameWriter::Failure(const absl::Status& status) {
  return Number(static_cast<uint64_t>(status.code())).Text(std::string(status.message()));
}

uint64_t FrameReader::Number() {
  if (!ok_ || fields_.size() - at_ < sizeof(uint64_t)) {
    ok_ = false;
    return 0;
  }
  const uint64_t number = Take<uint64_t>(fields_.data() + at_);
  at_ += sizeof(uint64_t);
  return number;
}

std::string FrameReader::Text() {
  if (ok_ && fields_.size() - at_ >= sizeof(uint32_t)) {
    const size_t length = Take<uint32_t>(fields_.data() + at_);
    at_ += sizeof(uint32_t);
    if (fields_.size() - at_ >= length) {
      at_ += length;
      return fields_.substr(at_ - length, length);
    }
  }
  ok_ = false;
  return "";
}

absl::Status FrameReader::StatusOf() {
  const uint64_t code = Number();
  const std::string message = Text();
  if (!ok_ || code > static_cast<uint64_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::UnknownError(message);
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

absl::Status FrameReader::Failure() {
  const absl::Status status = StatusOf();
  return status.ok() ? absl::UnknownError("") : status;
}

std::string Encode(const Frame& frame) {
  std::string bytes;
  bytes.reserve(kFrameHeader + frame.fields.size());
  Put(bytes, static_cast<uint32_t>(frame.fields.size()));
  bytes.push_back(static_cast<char>(frame.type));
  bytes += frame.fields;
  return bytes;
}

absl::Status FrameBuffer::Next(std::optional<Frame>& frame) {
  frame.reset();
  if (bytes_.size() < kFrameHeader) return absl::OkStatus();
  const size_t length = Take<uint32_t>(bytes_.data());
  const auto type = static_cast<unsigned char>(bytes_[4]);
  if (length > limit_ || type < static_cast<unsigned char>(FrameType::kGreeting) ||
      type > static_cast<unsigned char>(FrameType::kAnswered)) {
    return absl::InvalidArgumentError(absl::StrCat("no message of this protocol: ", length,
                                                   " bytes of type ", type, "; at most ", limit_));
  }
  if (bytes_.size() < kFrameHeader + length) return absl::OkStatus();
  frame = Frame{static_cast<FrameType>(type), bytes_.substr(kFrameHeader, length)};
  bytes_.erase(0, kFrameHeader + length);
  return absl::OkStatus();
}

}  // namespace zero
