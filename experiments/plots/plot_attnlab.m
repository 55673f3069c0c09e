function plot_attnlab(file, out, dataset)
% Error against n, a point a run, a colour a label (a variant with its parameters):  plot_attnlab('results/default.h5', 'error.png')
% dataset: its number, from 0 in alphabetical order. MATLAB (not tried yet) or GNU Octave with `pkg load netcdf`.
read = @(name) double(ncread(file, name));
keep = read('status') == 0 & read('cache_state') == 0 & read('causal') == 0;
datasets = read('dataset_id');
if nargin < 3, dataset = min(datasets(keep)); end
keep = keep & datasets == dataset;
labels = read('label_id');
names = regexp(ncreadatt(file, 'label_id', 'flag_meanings'), '\S+', 'match');
n = read('n');
error = read('err_rel_fro');
fprintf('%d runs of dataset %d: %.4g to %.4g\n', sum(keep), dataset, min(error(keep)), max(error(keep)));
picture = figure('Visible', 'off');
marks = 'osd^v<>p';
for id = unique(labels(keep))'
  here = keep & labels == id;
  loglog(n(here), error(here), marks(mod(id, numel(marks)) + 1), 'DisplayName', names{id + 1});
  hold on
end
ticks = unique(n(keep));
set(gca, 'XTick', ticks, 'XTickLabel', cellstr(num2str(ticks)), 'XLim', [ticks(1) / 1.2, ticks(end) * 1.2])
title(sprintf('dataset %d', dataset)), xlabel('n (length of the sequence)')
ylabel('relative error')
set(legend('Location', 'eastoutside'), 'Interpreter', 'none')
print(picture, out, '-dpng')
end
