-- The two packed values of a reader state hash, laid out in domain/author_state.rs and domain/reader_state.rs.

local META = '@'
local LIVE, OPENING = 1, 2
local AUTHOR = '<BI4I4I4I4I4I6I4I3I3'
local AUTHOR_BYTES = 37
local META_BYTES = 27

local function unpack_author(value)
  local e = {}
  local tail, read, at
  e.flags, e.rev, e.version, e.deletions, e.floor, e.base, e.newest, e.full, tail, read, at = struct.unpack(AUTHOR, value)
  e.base = e.base * 8
  e.tail = string.sub(value, at, at + tail - 1)
  e.read = string.sub(value, at + tail, at + tail + read - 1)
  e.deleted = string.sub(value, at + tail + read)
  return e
end

-- Trailing zero bytes say nothing.
local function trimmed(bits)
  return (string.gsub(bits, '%z+$', ''))
end

-- Leading 0xff bytes of the delivered bits are counted, not kept.
local function pack_author(e)
  local first = 1
  while string.byte(e.tail, first) == 255 do first = first + 1 end
  if first > 1 then
    e.full = e.full + first - 1
    e.tail = string.sub(e.tail, first)
  end
  return struct.pack(AUTHOR, e.flags, e.rev, e.version, e.deletions, e.floor, e.base / 8, e.newest, e.full, #e.tail, #e.read)
    .. e.tail .. e.read .. e.deleted
end

local function is_live(value)
  return bit.band(string.byte(value, 1), LIVE) == LIVE
end

local function tombstone(rev)
  return struct.pack(AUTHOR, 0, rev, 0, 0, 0, 0, 0, 0, 0, 0)
end

local function has_bit(bits, index)
  local byte = string.byte(bits, math.floor(index / 8) + 1)
  return byte ~= nil and bit.band(byte, bit.lshift(1, index % 8)) ~= 0
end

local function with_bit(bits, index)
  local at = math.floor(index / 8) + 1
  if #bits < at then bits = bits .. string.rep('\0', at - #bits) end
  local byte = bit.bor(string.byte(bits, at), bit.lshift(1, index % 8))
  return string.sub(bits, 1, at - 1) .. string.char(byte) .. string.sub(bits, at + 1)
end

local function low_of(meta)
  return (struct.unpack('<I6', meta, 2))
end

local function has_day(meta, day)
  for at = #meta - 1, META_BYTES + 1, -2 do
    if struct.unpack('<I2', meta, at) == day then return true end
  end
  return false
end

local function with_day(meta, day)
  return meta .. struct.pack('<I2', day)
end

local function without_day(meta, day)
  for at = META_BYTES + 1, #meta - 1, 2 do
    if struct.unpack('<I2', meta, at) == day then
      return string.sub(meta, 1, at - 1) .. string.sub(meta, at + 2)
    end
  end
  return meta
end
