#include "io/file_kind.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace zero {

std::string OtherKindOfFile(const std::string& start) {
  if (absl::StartsWith(start, "version https://git-lfs")) {
    return "it is a git-lfs pointer, not the file itself (git lfs pull fetches it)";
  }
  if (absl::StartsWith(start, "PK\x03\x04")) {
    return "it is a zip archive, as torch.save writes (.bin, .pt)";
  }
  if (absl::StartsWith(start, "\x80\x02") || absl::StartsWith(start, "\x80\x04")) {
    return "it is a Python pickle, as old versions of torch.save wrote (.bin, .pt)";
  }
  if (absl::StartsWith(start, "GGUF")) return "it is a GGUF file";
  const auto text = absl::StripLeadingAsciiWhitespace(start);
  if (absl::StartsWithIgnoreCase(text, "<!doctype") || absl::StartsWithIgnoreCase(text, "<html") ||
      absl::StartsWithIgnoreCase(text, "<?xml")) {
    return "it is an HTML or XML page, perhaps a saved error message";
  }
  if (absl::StartsWith(text, "{")) return "it is JSON text without the binary length in front";
  return "";
}

}  // namespace zero
