// Messages on a stream of bytes: a length, a type, and fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace zero {

enum class FrameType : uint8_t {
  kGreeting = 1,  // hub to newcomer: kMagic, protocol, nonce
  kJoin,          // newcomer to hub: see handshake.h
  kRefused,       // hub to newcomer: nothing; the connection ends
  kRoster,        // hub to member: proof, ranks that have not come; empty: the job is complete
  kPing,          // to show that one is alive
  kExchange,      // member to hub: index, name, a value for all ranks or one for each
  kExchanged,     // hub to member: index, values of all ranks for this one
  kAgree,         // member to hub: index, text
  kAbort,         // member to hub: code, message
  kFailed,        // hub to member: code, message
  kLeave,         // member to hub
  kLeft,          // hub to member: rank
  kAsk,           // member to hub: number of the question, subject
  kAsked,         // hub to member: who asks, number, subject
  kAnswer,        // member to hub: who asked, number, answer
  kAnswered,      // hub to member: who answers, number, answer
};

struct Frame {
  FrameType type = FrameType::kPing;
  std::string fields;
};

// Appends fields to a frame.
class FrameWriter {
 public:
  explicit FrameWriter(FrameType type) { frame_.type = type; }
  FrameWriter& Number(uint64_t number);
  FrameWriter& Text(const std::string& text);
  FrameWriter& Failure(const absl::Status& status);
  Frame Finish() { return std::move(frame_); }

 private:
  Frame frame_;
};

// Reads them back in the same order. Any mistake makes ok() false and fields empty.
class FrameReader {
 public:
  explicit FrameReader(const Frame& frame) : fields_(frame.fields) {}
  uint64_t Number();
  std::string Text();
  absl::Status StatusOf();  // what Failure wrote, which may be OK
  absl::Status Failure();   // never OK
  bool AtEnd() const { return at_ == fields_.size(); }
  bool ok() const { return ok_; }

 private:
  const std::string& fields_;
  size_t at_ = 0;
  bool ok_ = true;
};

// The bytes of a frame.
std::string Encode(const Frame& frame);

inline constexpr size_t kFrameHeader = 5;  // length of the fields, type

// Cuts what arrives into frames.
class FrameBuffer {
 public:
  // `limit`: bytes of the longest fields that are accepted.
  explicit FrameBuffer(size_t limit) : limit_(limit) {}
  void set_limit(size_t limit) { limit_ = limit; }
  void Append(const char* data, size_t bytes) { bytes_.append(data, bytes); }
  // Even the longest frame would be whole: it is time for Next.
  bool full() const { return bytes_.size() >= limit_ + kFrameHeader; }
  // The next whole frame, or nothing yet. kInvalidArgument: what arrives are no frames.
  absl::Status Next(std::optional<Frame>& frame);

 private:
  size_t limit_;
  std::string bytes_;
};

}  // namespace zero
