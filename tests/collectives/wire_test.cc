// Hashes and frames: what travels between ranks that meet.
#include <vector>

#include "absl/strings/escaping.h"
#include "collectives/frame.h"
#include "collectives/handshake.h"
#include "collectives/sha256.h"
#include "tests/catch.h"

namespace zero::test {
namespace {

std::string Hex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

TEST_CASE("Sha256: digests are those of FIPS 180-4", "[collectives]") {
  CHECK(Hex(Sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Hex(Sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(Hex(Sha256(std::string(1000000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("HmacSha256: codes are those of RFC 4231", "[collectives]") {
  CHECK(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(Hex(HmacSha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(Hex(HmacSha256(std::string(131, '\xaa'),
                       "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("FrameBuffer: frames come out as they went in however they are cut", "[collectives]") {
  const std::vector<Frame> frames = {
      FrameWriter(FrameType::kExchange)
          .Number(7)
          .Text("name")
          .Text(std::string(300, '\0'))
          .Finish(),
      FrameWriter(FrameType::kPing).Finish(),
      FrameWriter(FrameType::kAbort).Failure(absl::DataLossError("why")).Finish()};
  std::string bytes;
  for (const Frame& frame : frames) bytes += Encode(frame);
  for (size_t step : {1u, 3u, 7u, 1000u}) {
    FrameBuffer buffer(1000);
    std::vector<Frame> got;
    for (size_t at = 0; at < bytes.size(); at += step) {
      buffer.Append(bytes.data() + at, std::min(step, bytes.size() - at));
      std::optional<Frame> frame;
      while (buffer.Next(frame).ok() && frame.has_value()) got.push_back(*frame);
    }
    REQUIRE(got.size() == frames.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].type == frames[i].type);
      CHECK(got[i].fields == frames[i].fields);
    }
  }
  FrameReader reader(frames[0]);
  CHECK(reader.Number() == 7);
  CHECK(reader.Text() == "name");
  CHECK(reader.Text() == std::string(300, '\0'));
  CHECK((reader.ok() && reader.AtEnd()));
  CHECK(FrameReader(frames[2]).Failure() == absl::DataLossError("why"));
}

TEST_CASE("FrameBuffer: it is not full before the longest frames are whole", "[collectives]") {
  for (size_t length = 90; length <= 100; ++length) {
    CAPTURE(length);
    const std::string bytes = Encode(Frame{FrameType::kPing, std::string(length, 'x')});
    FrameBuffer buffer(100);
    // Filled as a connection does, in small pieces.
    for (size_t at = 0; at < bytes.size() && !buffer.full(); ++at) buffer.Append(&bytes[at], 1);
    std::optional<Frame> frame;
    CHECK_OK(buffer.Next(frame));
    REQUIRE(frame.has_value());
    CHECK(frame->fields.size() == length);
  }
  FrameBuffer buffer(100);
  const std::string most(100 + kFrameHeader, 'x');
  buffer.Append(most.data(), most.size());
  CHECK(buffer.full());
}

TEST_CASE("FrameBuffer: what is too long or of no type is refused before it is kept",
          "[collectives]") {
  const auto refused = [](const std::string& bytes) {
    FrameBuffer buffer(100);
    buffer.Append(bytes.data(), bytes.size());
    std::optional<Frame> frame;
    return absl::IsInvalidArgument(buffer.Next(frame)) && !frame.has_value();
  };
  CHECK(refused("GET / HTTP/1.1\r\n"));
  CHECK(refused(std::string("\x65\x00\x00\x00\x05", 5)));
  CHECK(refused(std::string("\x01\x00\x00\x00\x00", 5)));
  CHECK(refused(std::string("\x01\x00\x00\x00\x11", 5)));
  CHECK_FALSE(refused(std::string("\x64\x00\x00\x00\x05", 5)));
}

TEST_CASE("FrameReader: a frame that is cut short gives no fields", "[collectives]") {
  const Frame whole = FrameWriter(FrameType::kExchange).Number(7).Text("name").Finish();
  for (size_t length = 0; length < whole.fields.size(); ++length) {
    const Frame cut{whole.type, whole.fields.substr(0, length)};
    FrameReader reader(cut);
    reader.Number();
    CHECK(reader.Text() == "");
    CHECK_FALSE(reader.ok());
    CHECK_FALSE(FrameReader(cut).Failure().ok());
  }
}

TEST_CASE("ReadJoin: only a proof for this nonce and token is accepted", "[collectives]") {
  Join join;
  join.version = "1";
  join.nonce = "n";
  join.rank = 2;
  join.size = 3;
  join.configuration = "a=1";
  const Frame frame = JoinFrame(join, "token", "nonce");
  CHECK(frame.fields.find("token") == std::string::npos);
  const auto read = ReadJoin(frame, "token", "nonce");
  REQUIRE(read.ok());
  CHECK(read->rank == 2);
  CHECK(read->configuration == "a=1");
  CHECK(absl::IsPermissionDenied(ReadJoin(frame, "other", "nonce").status()));
  CHECK(absl::IsPermissionDenied(ReadJoin(frame, "token", "another").status()));
  CHECK(absl::IsInvalidArgument(
      ReadJoin(FrameWriter(FrameType::kPing).Finish(), "token", "nonce").status()));
}

}  // namespace
}  // namespace zero::test
