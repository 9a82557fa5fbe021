// SPDX-License-Identifier: Apache-2.0
#include "base/json_fields.h"

#include <charconv>
#include <functional>
#include <system_error>
#include <utility>

#include "base/return_error.h"

namespace forebay {
namespace {

class FieldsReader {
 public:
  explicit FieldsReader(std::string_view text) : text_(text) {}

  Result<std::map<std::string, JsonField, std::less<>>> object() {
    std::map<std::string, JsonField, std::less<>> fields;
    if (!take('{')) return wrong("an object in braces is expected");
    if (!take('}')) {
      do {
        skip_space();
        ASSIGN_OR_RETURN(std::string name, string());
        if (!take(':')) return wrong("a colon is expected");
        ASSIGN_OR_RETURN(JsonField field, value());
        if (!fields.emplace(std::move(name), std::move(field)).second) return wrong("a name is given twice");
      } while (take(','));
      if (!take('}')) return wrong("a comma or a closing brace is expected");
    }
    skip_space();
    if (at_ != text_.size()) return wrong("nothing more is expected");
    return fields;
  }

 private:
  tl::unexpected<Error> wrong(std::string_view what) const {
    return fail(ErrorCode::invalid_argument, std::string(what) + " at byte " + std::to_string(at_));
  }

  bool has() const { return at_ < text_.size(); }

  void skip_space() {
    constexpr std::string_view space = " \t\r\n";
    while (has() && space.find(text_[at_]) != std::string_view::npos) ++at_;
  }

  /// Takes this character, behind space, if it is there.
  bool take(char wanted) {
    skip_space();
    if (!has() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<JsonField> value() {
    skip_space();
    if (!has()) return wrong("a value is expected");
    if (text_[at_] == '"') return string();
    if (take_word("null")) return JsonField();
    if (take_word("true") || take_word("false")) return OtherJsonValue();
    return number();
  }

  Result<JsonField> number() {
    constexpr std::string_view of_numbers = "0123456789+-.eE";
    const std::size_t end = std::min(text_.find_first_not_of(of_numbers, at_), text_.size());
    const std::string_view digits = text_.substr(at_, end - at_);
    if (digits.empty()) return wrong("a text or a number is expected");
    const auto is_whole = digits.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_whole) {
      std::uint64_t found = 0;
      const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), found);
      if (error != std::errc() || last != digits.data() + digits.size() || (digits.size() > 1 && digits[0] == '0'))
        return wrong("a number of at most 64 bits is expected");
      at_ = end;
      return found;
    }
    double found = 0;
    const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), found);
    if (error != std::errc() || last != digits.data() + digits.size()) return wrong("a number is expected");
    at_ = end;
    return OtherJsonValue();
  }

  Result<std::string> string() {
    if (!has() || text_[at_] != '"') return wrong("a text in quotes is expected");
    ++at_;
    std::string found;
    while (has() && text_[at_] != '"') {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20) return wrong("a control character must be escaped");
      ++at_;
      if (c != '\\') {
        found.push_back(static_cast<char>(c));
      } else {
        RETURN_IF_ERROR(escape(found));
      }
    }
    if (!has()) return wrong("the end of a text is missing");
    ++at_;
    return found;
  }

  Result<void> escape(std::string& found) {
    constexpr std::string_view escapes = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    if (!has()) return wrong("an escape ends here");
    if (const auto which = escapes.find(text_[at_]); which != std::string_view::npos) {
      found.push_back(meanings[which]);
      ++at_;
      return {};
    }
    if (!take_word("u")) return wrong("an escape that is none");
    ASSIGN_OR_RETURN(std::uint32_t point, four_digits());
    constexpr std::uint32_t high = 0xd800;
    constexpr std::uint32_t low = 0xdc00;
    if (point >= high && point < low && take_word("\\u")) {
      ASSIGN_OR_RETURN(const std::uint32_t second, four_digits());
      if (second < low || second > 0xdfff) return wrong("half of a character");
      point = 0x10000 + ((point - high) << 10) + (second - low);
    } else if (point >= high && point <= 0xdfff) {
      return wrong("half of a character");
    }
    append_utf8(found, point);
    return {};
  }

  Result<std::uint32_t> four_digits() {
    const std::string_view digits = text_.substr(at_, 4);
    std::uint32_t found = 0;
    const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), found, 16);
    if (digits.size() != 4 || error != std::errc() || last != digits.data() + 4)
      return wrong("four hexadecimal digits are expected");
    at_ += 4;
    return found;
  }

  static void append_utf8(std::string& text, std::uint32_t point) {
    const auto byte = [&](std::uint32_t value) { text.push_back(static_cast<char>(value)); };
    if (point < 0x80) {
      byte(point);
    } else if (point < 0x800) {
      byte(0xc0 | point >> 6);
      byte(0x80 | (point & 0x3f));
    } else {
      if (point < 0x10000) {
        byte(0xe0 | point >> 12);
      } else {
        byte(0xf0 | point >> 18);
        byte(0x80 | (point >> 12 & 0x3f));
      }
      byte(0x80 | (point >> 6 & 0x3f));
      byte(0x80 | (point & 0x3f));
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::map<std::string, JsonField, std::less<>>> parse_json_fields(std::string_view text) {
  return FieldsReader(text).object();
}

}  // namespace forebay
