function plot_attnlab(file)
% Error against n, one line a variant:  plot_attnlab('results/default.h5')
% MATLAB R2020b or later (h5read of text). Not tried yet.
variant = string(h5read(file, '/variant'));
n = double(h5read(file, '/n'));
error = h5read(file, '/err_rel_fro');
ok = h5read(file, '/status') == 0 & startsWith(string(h5read(file, '/dataset')), "captured");
for name = unique(variant(ok))'
  here = ok & variant == name;
  [group, length] = findgroups(n(here));
  loglog(length, splitapply(@median, error(here), group), '-o', 'DisplayName', name);
  hold on
end
xlabel('n'), ylabel('relative error'), legend show
end
