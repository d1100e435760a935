// Dark or light: as the system has it, unless chosen.

const stored = 'weir-theme';

export function startTheme(select) {
  const apply = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  select.value = localStorage.getItem(stored) ?? '';
  apply(select.value);
  select.addEventListener('change', () => {
    if (select.value) localStorage.setItem(stored, select.value);
    else localStorage.removeItem(stored);
    apply(select.value);
  });
}
