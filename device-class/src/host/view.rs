//! A [`HostView`] that is either borrowed or owned, for [`super::HostRecorder`].

use std::ops::Deref;

use super::HostView;

/// A borrowed [`HostView`], or an owned one that [`HostView::open_driver_root`] has returned.
pub enum HostViewCow<'a> {
    Borrowed(&'a dyn HostView),
    Owned(Box<dyn HostView + 'a>),
}

impl<'a> Deref for HostViewCow<'a> {
    type Target = dyn HostView + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            HostViewCow::Borrowed(view) => *view,
            HostViewCow::Owned(view) => &**view,
        }
    }
}
