//! Constants of the kernel's interface, as in `linux/netfilter/nf_tables.h`.

/// The subsystem number of nftables.
pub(crate) const SUBSYSTEM: u16 = 10;
/// All families.
pub(crate) const UNSPECIFIED: u8 = 0;
/// The `inet` family: IPv4 and IPv6 together.
pub(crate) const INET: u8 = 1;
/// The multicast group for changes of nftables.
pub(crate) const CHANGES: u32 = 7;
/// The address families, as `meta nfproto` and `nat` have them.
pub(crate) const IPV4: u8 = 2;
pub(crate) const IPV6: u8 = 10;

/// Types of messages.
pub(crate) mod kind {
    const fn nftables(number: u16) -> u16 {
        super::SUBSYSTEM << 8 | number
    }
    pub(crate) const NEW_TABLE: u16 = nftables(0);
    pub(crate) const GET_TABLE: u16 = nftables(1);
    pub(crate) const DELETE_TABLE: u16 = nftables(2);
    pub(crate) const NEW_CHAIN: u16 = nftables(3);
    pub(crate) const GET_CHAIN: u16 = nftables(4);
    pub(crate) const DELETE_CHAIN: u16 = nftables(5);
    pub(crate) const NEW_RULE: u16 = nftables(6);
    pub(crate) const GET_RULE: u16 = nftables(7);
    pub(crate) const DELETE_RULE: u16 = nftables(8);
    pub(crate) const NEW_SET: u16 = nftables(9);
    pub(crate) const GET_SET: u16 = nftables(10);
    pub(crate) const DELETE_SET: u16 = nftables(11);
    pub(crate) const NEW_ELEMENTS: u16 = nftables(12);
    pub(crate) const GET_ELEMENTS: u16 = nftables(13);
    pub(crate) const DELETE_ELEMENTS: u16 = nftables(14);
    pub(crate) const NEW_FLOWTABLE: u16 = nftables(22);
    pub(crate) const GET_FLOWTABLE: u16 = nftables(23);
}

/// An entry of a list.
pub(crate) const LIST_ELEM: u16 = 1;

pub(crate) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const FLAGS: u16 = 2;
    pub(crate) const HANDLE: u16 = 4;
    pub(crate) const OWNER: u16 = 7;

    /// Only the socket that owns the table may change it.
    pub(crate) const FLAG_OWNER: u32 = 2;
    /// The table stays when that socket is closed.
    pub(crate) const FLAG_PERSIST: u32 = 4;
}

pub(crate) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const TYPE: u16 = 7;

    pub(crate) const HOOK_NUMBER: u16 = 1;
    pub(crate) const HOOK_PRIORITY: u16 = 2;
}

pub(crate) mod flowtable {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const HOOK: u16 = 3;

    pub(crate) const HOOK_DEVICES: u16 = 3;
    pub(crate) const DEVICE_NAME: u16 = 1;
    pub(crate) const DEVICE_PREFIX: u16 = 2;
}

pub(crate) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const EXPRESSIONS: u16 = 4;
}

pub(crate) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LENGTH: u16 = 5;
    pub(crate) const DATA_TYPE: u16 = 6;
    pub(crate) const DATA_LENGTH: u16 = 7;
    pub(crate) const DESCRIPTION: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const USER_DATA: u16 = 13;

    pub(crate) const DESCRIPTION_SIZE: u16 = 1;
    pub(crate) const FLAG_ANONYMOUS: u32 = 1;
    pub(crate) const FLAG_INTERVAL: u32 = 4;
    pub(crate) const FLAG_MAP: u32 = 8;
    /// The data type of verdicts.
    pub(crate) const VERDICT: u32 = 0xffff_ff00;
}

pub(crate) mod elements {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const SET: u16 = 2;
    pub(crate) const ELEMENTS: u16 = 3;

    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;

    /// The key is the end of a range.
    pub(crate) const FLAG_END: u32 = 1;
}

pub(crate) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
}

pub(crate) mod verdict {
    pub(crate) const CODE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;

    pub(crate) const DROP: i32 = 0;
    pub(crate) const ACCEPT: i32 = 1;
    pub(crate) const JUMP: i32 = -3;
    pub(crate) const GOTO: i32 = -4;
    pub(crate) const RETURN: i32 = -5;
}

pub(crate) mod expression {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DATA: u16 = 2;
}

pub(crate) mod immediate {
    pub(crate) const TO: u16 = 1;
    pub(crate) const DATA: u16 = 2;
}

pub(crate) mod bitwise {
    pub(crate) const FROM: u16 = 1;
    pub(crate) const TO: u16 = 2;
    pub(crate) const LENGTH: u16 = 3;
    pub(crate) const MASK: u16 = 4;
    pub(crate) const XOR: u16 = 5;
    pub(crate) const OPERATION: u16 = 6;
    pub(crate) const DATA: u16 = 7;

    pub(crate) const SHIFT_RIGHT: u32 = 2;
}

pub(crate) mod byteorder {
    pub(crate) const FROM: u16 = 1;
    pub(crate) const TO: u16 = 2;
    pub(crate) const OPERATION: u16 = 3;
    pub(crate) const LENGTH: u16 = 4;
    pub(crate) const SIZE: u16 = 5;

    pub(crate) const NETWORK_TO_HOST: u32 = 0;
}

pub(crate) mod cmp {
    pub(crate) const FROM: u16 = 1;
    pub(crate) const OPERATION: u16 = 2;
    pub(crate) const DATA: u16 = 3;

    pub(crate) const EQUAL: u32 = 0;
    pub(crate) const NOT_EQUAL: u32 = 1;
}

pub(crate) mod range {
    pub(crate) const FROM: u16 = 1;
    pub(crate) const OPERATION: u16 = 2;
    pub(crate) const FIRST: u16 = 3;
    pub(crate) const LAST: u16 = 4;

    pub(crate) const INSIDE: u32 = 0;
}

pub(crate) mod lookup {
    pub(crate) const SET: u16 = 1;
    pub(crate) const FROM: u16 = 2;
    pub(crate) const TO: u16 = 3;
    pub(crate) const FLAGS: u16 = 5;

    pub(crate) const FLAG_INVERTED: u32 = 1;
}

pub(crate) mod payload {
    pub(crate) const TO: u16 = 1;
    pub(crate) const BASE: u16 = 2;
    pub(crate) const OFFSET: u16 = 3;
    pub(crate) const LENGTH: u16 = 4;

    pub(crate) const NETWORK: u32 = 1;
    pub(crate) const TRANSPORT: u32 = 2;
}

pub(crate) mod meta {
    pub(crate) const TO: u16 = 1;
    pub(crate) const KEY: u16 = 2;

    pub(crate) const INTERFACE_IN: u32 = 6;
    pub(crate) const FAMILY: u32 = 15;
    pub(crate) const L4: u32 = 16;
}

pub(crate) mod fib {
    pub(crate) const TO: u16 = 1;
    pub(crate) const RESULT: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;

    /// The interface of the route.
    pub(crate) const INTERFACE: u32 = 1;
    /// Whether a route to the source address leaves through the input interface; the result is only
    /// present or absent.
    pub(crate) const SOURCE_BY_INTERFACE_IN: u32 = 0x01 | 0x08 | 0x20;
}

pub(crate) mod ct {
    pub(crate) const TO: u16 = 1;
    pub(crate) const KEY: u16 = 2;
    pub(crate) const DIRECTION: u16 = 3;
    pub(crate) const FROM: u16 = 4;

    pub(crate) const STATE: u32 = 0;
    pub(crate) const WAY: u32 = 1;
    pub(crate) const MARK: u32 = 3;
    pub(crate) const L4: u32 = 10;
    pub(crate) const SOURCE_PORT: u32 = 11;
    pub(crate) const SOURCE_IPV4: u32 = 19;
    pub(crate) const SOURCE_IPV6: u32 = 21;

    /// The directions of a tuple: that of the first packet, and that of replies.
    pub(crate) const ORIGINAL: u8 = 0;
    pub(crate) const REPLY: u8 = 1;
}

pub(crate) mod counter {
    pub(crate) const BYTES: u16 = 1;
    pub(crate) const PACKETS: u16 = 2;
}

pub(crate) mod nat {
    pub(crate) const TYPE: u16 = 1;
    pub(crate) const FAMILY: u16 = 2;
    pub(crate) const FIRST_ADDRESS: u16 = 3;
    pub(crate) const LAST_ADDRESS: u16 = 4;
    pub(crate) const FIRST_PORT: u16 = 5;
    pub(crate) const LAST_PORT: u16 = 6;
    pub(crate) const FLAGS: u16 = 7;

    pub(crate) const DESTINATION: u32 = 1;
    /// The registers have an address and a port.
    pub(crate) const FLAGS_GIVEN: u32 = 3;
}
