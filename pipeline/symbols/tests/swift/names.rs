//! Names of Swift, made by its grammar from numbers.

/// Nested parts.
const DEPTH: u32 = 4;

/// The first ones are plain: words, or made of words that were there before.
const IDENTIFIERS: [&str; 22] = [
    "3foo",
    "4main",
    "3Bar",
    "7Element",
    "10firstIndex",
    "0A3Set",
    "0B4View",
    "0bA5Table",
    "0a3SetB0",
    "9some_word",
    "3x1y",
    "7HTTPGet",
    "07_hyperA",
    "0022egbpdajGbuEbxfgehfvwxn",
    "2ppoi",
    "2eeoi",
    "1soP",
    "1nop",
    "3foo33_ABCDEF0123456789ABCDEF0123456789LL",
    "3fooL_",
    "3fooL0_",
    "6ErrorsLE",
];
const PLAIN: usize = 7;

pub struct Names(u64);

impl Names {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn one(&mut self, of: &[&str]) -> String {
        of[self.below(of.len())].to_owned()
    }

    fn maybe(&mut self, text: &str) -> String {
        match self.below(3) {
            0 => text.to_owned(),
            _ => String::new(),
        }
    }

    /// A name, most of them of functions.
    pub fn name(&mut self) -> String {
        let start = self.one(&["$s", "$s", "$s", "_$s", "$S", "$e"]);
        let thing = self.thing();
        let mut name = start + &thing;
        // Apple's take the letter behind these for another one of them.
        if name.ends_with("Tv_") || name.ends_with("Tv0_") {
            return name;
        }
        for _ in 0..self.below(3) {
            name += &self.attribute();
        }
        if self.below(8) == 0 {
            name += &self.one(&[".cold", ".1", ".llvm.123\"4"]);
        }
        name
    }

    fn thing(&mut self) -> String {
        let kind = self.kind(DEPTH);
        match self.below(20) {
            0 => {
                let end = self.one(&["N", "Ma", "Mi", "Mr", "Mn", "Mm", "MP", "ML", "MF", "WV"]);
                kind + &end
            }
            1 => {
                let end = self.one(&[
                    "WOe", "WOy", "WOh", "WOc", "WOb", "WOd", "WOr", "WOs", "WOi_",
                ]);
                let signature = self.signature();
                self.one(&["", &signature]);
                kind + &end
            }
            2 => {
                let end = self.one(&[
                    "wxx", "wcp", "wca", "wtk", "wta", "wet", "wst", "wug", "wui",
                ]);
                kind + &end
            }
            3 => self.conformance() + &self.one(&["WP", "Wa", "WI", "Mc", "WG", "Wp", "Hc"]),
            4 => {
                let conformance = self.conformance();
                kind + &conformance + &self.one(&["Wl", "WL"])
            }
            5 => self.conformance() + &self.entity(DEPTH) + "TW",
            6 => {
                let (from, to) = (self.implementation(), self.implementation());
                let signature = self.signature();
                from + &to + &self.maybe(&signature) + &self.one(&["TR", "Tr"])
            }
            7 => {
                let entity = self.entity(DEPTH);
                entity + &self.one(&["Tj", "Tq", "Tc", "Wvd", "WC", "MV", "TS"])
            }
            8 => {
                let entity = self.entity(DEPTH);
                let (one, other) = (self.kind(2), self.kind(2));
                entity + &one + "_" + &other + "t" + &self.one(&["TK", "Tk", "TKq"])
            }
            9 => self.context(2) + &self.identifier() + "_" + &self.one(&["WZ", "Wz"]),
            10 => {
                let kinds = self.kinds();
                self.entity(DEPTH)
                    + &kinds
                    + &self.one(&["Tg5", "TG5", "Tgq5", "TB5", "Ts5", "Ti5"])
            }
            11 => {
                let parameters = self.one(&[
                    "n_n", "d_n", "nd_n", "dGX_n", "gX_o", "x_n", "i_s", "pi5_n", "eDGX_n",
                ]);
                self.entity(DEPTH) + "Tf4" + &parameters
            }
            12 => {
                let (name, of) = (self.plain_identifier(), self.plain_identifier());
                match self.below(2) {
                    0 => self.context(2) + &name + &of + &self.one(&["fMa_", "fMm0_", "fMp_"]),
                    _ => self.context(2) + &name + "fMf_",
                }
            }
            13 => self.entity(DEPTH) + &self.one(&["Tv_", "Tv0_"]),
            _ => self.entity(DEPTH),
        }
    }

    fn attribute(&mut self) -> String {
        self.one(&[
            "To", "TO", "TD", "Td", "TA", "Ta", "Tm", "TX", "Tx", "TI", "Tu", "TQ0_", "TY1_", "TE",
            "TF", "Twb", "TwB", "Twc", "Twd", "TwS", "Tv0r", "Tembnn_", "HF",
        ])
    }

    fn identifier(&mut self) -> String {
        self.one(&IDENTIFIERS)
    }

    fn plain_identifier(&mut self) -> String {
        self.one(&IDENTIFIERS[..PLAIN])
    }

    fn module(&mut self) -> String {
        self.one(&["4main", "s", "So", "SC", "10Foundation", "AA", "3Bar"])
    }

    fn context(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.module();
        }
        match self.below(8) {
            0..=2 => self.module(),
            3..=5 => self.nominal(depth - 1),
            6 => {
                let of = self.nominal(depth - 1);
                let module = self.module();
                let signature = self.signature();
                of + &module + &self.maybe(&signature) + "E"
            }
            _ => self.entity(depth - 1),
        }
    }

    fn nominal(&mut self, depth: u32) -> String {
        match self.below(6) {
            0 => self.one(&[
                "Si", "SS", "Sa", "SD", "Sb", "Sd", "SP", "Sq", "SH", "ST", "ScM", "ScT", "ScA",
            ]),
            1 => self.one(&["AA", "AB", "AC", "AD", "AE", "AF"]),
            _ => {
                let context = self.context(depth);
                context + &self.identifier() + &self.one(&["C", "V", "O", "P", "C", "V", "a"])
            }
        }
    }

    fn protocol(&mut self) -> String {
        match self.below(3) {
            0 => self.one(&["SH", "SQ", "ST", "SL", "Se", "s5Error", "ScA"]),
            1 => self.module() + &self.plain_identifier(),
            _ => self.context(1) + &self.plain_identifier() + "P",
        }
    }

    fn protocols(&mut self) -> String {
        match self.below(3) {
            0 => "y".to_owned(),
            1 => self.protocol() + "_",
            _ => self.protocol() + "_" + &self.protocol(),
        }
    }

    fn conformance(&mut self) -> String {
        let of = self.nominal(2);
        let signature = self.signature();
        of + &self.protocol() + &self.module() + &self.maybe(&signature)
    }

    /// A list of types.
    fn kinds(&mut self) -> String {
        match self.below(4) {
            0 => "y".to_owned(),
            1 => self.kind(2) + "_",
            2 => self.kind(2) + "_" + &self.kind(2),
            _ => self.kind(1) + "_" + &self.kind(1) + &self.kind(1),
        }
    }

    fn kind(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.one(&[
                "Si", "SS", "Sb", "x", "q_", "qd__", "yp", "Bo", "Bi64_", "AA", "S2i", "Su",
            ]);
        }
        let depth = depth - 1;
        match self.below(27) {
            0..=3 => self.nominal(depth),
            4 => self.kind(depth) + "Sg",
            5 => "Say".to_owned() + &self.kind(depth) + "G",
            6 => "SDy".to_owned() + &self.kind(depth) + &self.kind(depth) + "G",
            7 => self.nominal(depth) + "y" + &self.kind(depth) + "G",
            8 => {
                let outer = self.module() + &self.plain_identifier() + "V";
                let inner = self.plain_identifier() + "C";
                outer + &inner + "y" + &self.kind(depth) + "_" + &self.kind(depth) + "G"
            }
            9 => self.kinds() + "t",
            10 => {
                let (label, other) = (self.plain_identifier(), self.plain_identifier());
                self.kind(depth) + &label + "_" + &self.kind(depth) + &self.maybe(&other) + "t"
            }
            11 | 12 => {
                self.function(depth).1
                    + &self.one(&["c", "XE", "XK", "XA", "XC", "XB", "Xf", "XU", "XL"])
            }
            13 => self.kind(depth) + &self.one(&["m", "XMt", "XMT", "Xp", "XmT"]),
            14 => self.protocols() + "p",
            15 => self.protocols() + "Xl",
            16 => self.protocols() + &self.nominal(depth) + "Xc",
            17 => {
                self.kind(depth)
                    + &self.one(&[
                        "Xo", "Xu", "Xw", "XD", "Xb", "z", "h", "n", "Yi", "Yu", "Yk",
                    ])
            }
            18 => self.plain_identifier() + &self.one(&["Qz", "Qy_", "Qyd__"]),
            19 => {
                self.plain_identifier() + "_" + &self.plain_identifier() + &self.one(&["QZ", "QY_"])
            }
            20 => self.plain_identifier() + &self.protocol() + "P" + "Qz",
            21 => self.kind(depth) + &self.signature() + "u",
            22 => self.entity(depth) + "QOy_Qo_",
            23 => self.implementation(),
            24 => self.kinds() + "Xx",
            25 => self.kind(depth) + &self.one(&["XSq", "XSa", "XSp"]),
            _ => self.kinds() + "QP",
        }
    }

    /// Labels, and what is returned and taken.
    fn function(&mut self, depth: u32) -> (String, String) {
        let result = match self.below(3) {
            0 => "y".to_owned(),
            _ => self.kind(depth),
        };
        let (labels, parameters) = match self.below(4) {
            0 => (String::new(), "y".to_owned()),
            1 => (self.label(), self.kind(depth)),
            2 => {
                let first = self.kind(depth) + &self.one(&["", "z", "n", "h"]) + "_";
                let labels = self.label() + &self.label();
                (labels, first + &self.kind(depth) + &self.maybe("d") + "t")
            }
            _ => (
                "y".to_owned(),
                self.kind(depth) + "_" + &self.kind(depth) + "t",
            ),
        };
        let effects = self.maybe("Ya")
            + &self.maybe("Yb")
            + &self.one(&["", "K", "s5ErrorVYK"])
            + &self.one(&["", "", "Yjr", "Yjd"])
            + &self.one(&["", "ScMYc", "YA", "YC"])
            + &self.one(&["", "", "", "YT"]);
        (labels, result + &parameters + &effects)
    }

    fn label(&mut self) -> String {
        match self.below(3) {
            0 => "_".to_owned(),
            _ => self.plain_identifier(),
        }
    }

    fn entity(&mut self, depth: u32) -> String {
        let below = depth.saturating_sub(1);
        let context = self.context(below);
        let (labels, function) = self.function(below.min(2));
        let signature = self.signature();
        let signature = self.maybe(&signature);
        match self.below(14) {
            0..=4 => {
                context
                    + &self.identifier()
                    + &labels
                    + &function
                    + &signature
                    + "F"
                    + &self.maybe("Z")
            }
            5 => context + &labels + &function + "c" + &self.one(&["fC", "fc"]),
            6 => context + &labels + &function + &signature + &self.one(&["cfC", "clufC"]),
            7 => context + &function + &self.one(&["cfU_", "XEfU0_", "cfu_", "cfU12_"]),
            8 => context + &self.one(&["fD", "fd", "fE", "fe", "fZ"]),
            9 => context + &self.one(&["fA_", "fA0_"]),
            10 => {
                context
                    + &self.identifier()
                    + &self.kind(below.min(2))
                    + "v"
                    + &self.accessor(depth)
                    + &self.maybe("Z")
            }
            11 => context + &labels + &function + "ci" + &self.accessor(depth),
            12 => {
                let variable = self.identifier() + "Siv";
                context + &variable + &self.one(&["pfi", "pfP", "pfW", "pfF"])
            }
            _ => context + &self.identifier() + &labels + &function + "F",
        }
    }

    /// Apple's leave out which accessor it is where something else is in it.
    fn accessor(&mut self, depth: u32) -> String {
        if depth < DEPTH {
            return "p".to_owned();
        }
        self.one(&[
            "g", "s", "M", "r", "w", "W", "m", "p", "x", "y", "au", "lu", "i", "b", "z", "G",
        ])
    }

    fn signature(&mut self) -> String {
        let mut requirements = String::new();
        for _ in 0..self.below(3) {
            let at = self.one(&["z", "_", "0_", "d__"]);
            requirements += &match self.below(7) {
                0 | 1 => self.protocol() + "R" + &at,
                2 => self.protocol() + &self.plain_identifier() + "Rp" + &at,
                3 => self.kind(1) + "Rs" + &at,
                4 => self.kind(1) + &self.plain_identifier() + "Rt" + &at,
                5 => "Rl".to_owned() + &at + &self.one(&["C", "T", "U", "e8_", "E8_4_"]),
                _ => "Ri".to_owned() + &self.one(&["_", "0_"]) + &at,
            };
        }
        requirements + &self.one(&["l", "r0_l", "rl", "rz_l", "r__l", "r1_l"])
    }

    /// The type of a function as it is called in fact.
    fn implementation(&mut self) -> String {
        let convention = self.maybe("e")
            + &self.one(&["", "", "d", "r"])
            + &self.one(&["g", "y", "x", "t"])
            + &self.one(&["", "", "B", "C", "M", "K", "W", "O"])
            + &self.one(&["", "", "A", "I", "G"])
            + &self.maybe("h")
            + &self.maybe("H");
        let mut kinds = String::new();
        let mut parts = String::new();
        for _ in 0..self.below(3) {
            kinds += &self.kind(1);
            parts += &self.one(&["i", "n", "x", "y", "g", "l", "gw", "xT"]);
        }
        if self.below(2) == 0 {
            kinds += &self.kind(1);
            parts += &self.one(&["r", "o", "d", "u", "a", "dw"]);
        }
        if self.below(4) == 0 {
            kinds += "s5Error_p";
            parts += "zo";
        }
        let signature = self.signature();
        kinds + &self.maybe(&signature) + "I" + &convention + &parts + "_"
    }
}
