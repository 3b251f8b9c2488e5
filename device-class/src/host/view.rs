//! A view of a host that is either borrowed or owned. [`super::Recording`] wraps such a view.

use std::ops::Deref;

use super::HostView;

/// A borrowed view of a host, or an owned view of a driver root from
/// [`HostView::open_driver_root`].
pub enum View<'a> {
    Borrowed(&'a dyn HostView),
    Owned(Box<dyn HostView + 'a>),
}

impl<'a> Deref for View<'a> {
    type Target = dyn HostView + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            View::Borrowed(view) => *view,
            View::Owned(view) => &**view,
        }
    }
}
