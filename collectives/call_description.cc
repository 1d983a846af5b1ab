#include "collectives/call_description.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace zero {

std::string DescribeCall(const char* operation, const std::string& name,
                         absl::Span<const int64_t> bytes) {
  std::string text = absl::StrCat(operation, " '", name, "'");
  if (!bytes.empty()) absl::StrAppend(&text, " of ", absl::StrJoin(bytes, "+"), " bytes");
  return text;
}

}  // namespace zero
