//! Colours by what they stand for, each for a light and for a dark page.
//!
//! Plots are drawn in the light ones. The page has a CSS variable for each, and rules by which whatever
//! is drawn in a colour takes its variable: so one plot serves both, and a plot that is saved from the
//! page still has colours.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// What a colour stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    /// Text and axes.
    Ink,
    /// Names of axes and lesser text.
    Muted,
    /// Lines of a grid.
    Grid,
    /// What a forecast allows.
    Band,
    /// The forecast itself.
    Forecast,
    /// An event.
    Mark,
    /// A run, or one of several curves; they repeat after [`NUM_SERIES`].
    Series(usize),
    /// A load over the mean load, by level.
    Load(usize),
    /// A share that was lost, by level.
    Lost(usize),
}

/// Colours of curves.
pub(super) const NUM_SERIES: usize = 8;

/// Name of a variable, light and dark value.
type Entry = (&'static str, u32, u32);

const PLAIN: [Entry; 6] = [
    ("ink", 0x1F_2328, 0xE6_EDF3),
    ("muted", 0x59_636E, 0xA3_ADB8),
    ("grid", 0xDD_E2E7, 0x2C_333B),
    ("band", 0xCF_DEF3, 0x22_3A5E),
    ("forecast", 0x5A_7FB5, 0x86_AEE6),
    ("mark", 0x8A_6D00, 0xD9_B84A),
];

const SERIES: [Entry; NUM_SERIES] = [
    ("series-0", 0x0B_62B8, 0x6C_B2FF),
    ("series-1", 0xC2_410C, 0xFF_9D5C),
    ("series-2", 0x15_803D, 0x5F_D38A),
    ("series-3", 0x93_33EA, 0xC7_9BFF),
    ("series-4", 0xBE_123C, 0xFF_7A92),
    ("series-5", 0x0E_7490, 0x53_D1E6),
    ("series-6", 0x85_4D0E, 0xE0_B15C),
    ("series-7", 0x4D_5358, 0xB8_C0C8),
];

/// From unused through the mean to eight times it: blue below, red above.
const LOAD: [Entry; 9] = [
    ("load-0", 0x3B_0764, 0xD9_B8FF),
    ("load-1", 0x21_66AC, 0x62_B3EE),
    ("load-2", 0x67_A9CF, 0x2F_75A8),
    ("load-3", 0xD1_E5F0, 0x1D_3A52),
    ("load-4", 0xF0_EFEA, 0x26_292D),
    ("load-5", 0xFD_DBC7, 0x5A_3420),
    ("load-6", 0xEF_8A62, 0xB8_5A2A),
    ("load-7", 0xB2_182B, 0xFF_8A5C),
    ("load-8", 0x5C_0011, 0xFF_D2BD),
];

/// From nothing to a third and more.
const LOST: [Entry; 9] = [
    ("lost-0", 0xF4_F4F1, 0x20_2429),
    ("lost-1", 0xFF_F1CC, 0x33_270F),
    ("lost-2", 0xFE_E2A0, 0x55_3A10),
    ("lost-3", 0xFD_C46A, 0x7D_4F12),
    ("lost-4", 0xF9_9B45, 0xA8_651A),
    ("lost-5", 0xEC_6C2F, 0xD3_8026),
    ("lost-6", 0xC9_401F, 0xF0_A144),
    ("lost-7", 0x96_231A, 0xFF_C777),
    ("lost-8", 0x5A_1016, 0xFF_E9C2),
];

fn all() -> impl Iterator<Item = &'static Entry> {
    PLAIN.iter().chain(&SERIES).chain(&LOAD).chain(&LOST)
}

impl Colour {
    fn entry(self) -> &'static Entry {
        match self {
            Self::Ink => &PLAIN[0],
            Self::Muted => &PLAIN[1],
            Self::Grid => &PLAIN[2],
            Self::Band => &PLAIN[3],
            Self::Forecast => &PLAIN[4],
            Self::Mark => &PLAIN[5],
            Self::Series(index) => &SERIES[index % NUM_SERIES],
            Self::Load(level) => &LOAD[level],
            Self::Lost(level) => &LOST[level],
        }
    }

    /// As plots are drawn.
    pub(super) fn rgb(self) -> RGBColor {
        let [_, red, green, blue] = self.entry().1.to_be_bytes();
        RGBColor(red, green, blue)
    }

    /// As CSS of the page names it.
    pub(super) fn css(self) -> String {
        format!("var(--{})", self.entry().0)
    }
}

/// Variables for either page, and the rules that hand them to what is drawn.
pub(super) fn css() -> String {
    let values = |value: fn(&Entry) -> u32| {
        all().fold(String::new(), |mut css, entry| {
            write!(css, "--{}:#{:06X};", entry.0, value(entry)).expect("text");
            css
        })
    };
    let mut css = format!(":root{{{}}}\n", values(|entry| entry.1));
    let dark = values(|entry| entry.2);
    writeln!(css, "@media(prefers-color-scheme:dark){{:root{{{dark}}}}}").expect("text");
    for (name, light, _) in all() {
        for property in ["fill", "stroke"] {
            writeln!(css, "svg [{property}=\"#{light:06X}\"]{{{property}:var(--{name})}}")
                .expect("text");
        }
    }
    css
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_meanings_share_a_colour() {
        let light: BTreeSet<u32> = all().map(|entry| entry.1).collect();
        let dark: BTreeSet<u32> = all().map(|entry| entry.2).collect();
        assert_eq!([light.len(), dark.len()], [all().count(); 2]);
    }

    #[test]
    fn what_is_drawn_in_a_colour_has_a_rule() {
        let RGBColor(red, green, blue) = Colour::Series(NUM_SERIES).rgb();
        let drawn =
            format!("[stroke=\"#{red:02X}{green:02X}{blue:02X}\"]{{stroke:var(--series-0)}}");
        assert!(css().contains(&drawn), "{drawn}");
    }
}
